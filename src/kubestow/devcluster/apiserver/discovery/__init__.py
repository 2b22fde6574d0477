"""Discovery: the served groups, versions and resources, and their OpenAPI documents."""
