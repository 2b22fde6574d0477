"""The cycle of one pod: decide, assume, Reserve, Permit, then bind in the background; and what follows a failure."""
