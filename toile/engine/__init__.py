"""The engine: dtypes, avals, trees, arrays, the Operation contract, tracing and Programs."""
