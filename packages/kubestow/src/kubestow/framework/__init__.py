"""The plugin interface (extension points, statuses, registered events), and the runtime that calls plugins."""
