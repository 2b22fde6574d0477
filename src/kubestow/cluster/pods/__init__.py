"""Pods as scheduling holds them: shapes, the pod table, and indexes over placed pods."""
