"""The rules of admission: each a function whose docstring is the sentence that it enforces.

A rule looks at plain facts and returns a Refusal, or None where it has nothing against the request.
"""
