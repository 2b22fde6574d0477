"""The registry: create, update, patch and delete, with admission and deletion rules. The only writer of the store."""
