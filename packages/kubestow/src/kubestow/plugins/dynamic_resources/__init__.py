"""DynamicResources: device inventory, device allocator and the plugin that allocates claims (semantics 8.16)."""
