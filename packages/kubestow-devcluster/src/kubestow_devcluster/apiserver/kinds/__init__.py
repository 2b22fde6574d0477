"""What a kind is: its names, schema and strategy, the scheme that finds it, and the parts that objects share."""
