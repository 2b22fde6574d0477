"""Pods as the scheduler keeps them: shapes, the pod table, and indexes over placed pods."""
