"""Controllers that end objects: garbage collection, namespaces, node lifecycle, taint eviction and event expiry."""
