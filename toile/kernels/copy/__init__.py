"""Copies between strided arrays, and operations that only move elements."""
