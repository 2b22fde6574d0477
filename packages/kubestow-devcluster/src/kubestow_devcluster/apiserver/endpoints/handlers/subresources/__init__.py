"""The handlers of subresources that are not a part of the object itself."""
