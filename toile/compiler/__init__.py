"""The compiler: passes over Programs, one to a file; `pipeline` lists them in order.

A pass takes a Program and gives another with the same inputs, outputs and meaning. Nothing here
knows of derivatives: what reaches the compiler has been differentiated. May import control and
below.
"""
