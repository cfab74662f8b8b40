"""The compiler: passes over Programs, one to a file; `pipeline` lists them in order.

A pass takes a Program and returns another with the same inputs, outputs and meaning. Nothing here
deals with derivatives: Programs have been differentiated before they reach the compiler. This
package may import control and the layers below it.
"""
