"""Replay: the recorded scheduler exactly, step by step, or its cluster under another configuration."""
