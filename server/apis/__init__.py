"""The APIs: a thin handler module for each, in folders by subject.

A module declares its API (`API = Api(...)`) and has `handle`, from a request and its context to the answer. To add one,
add its file: nothing else names it.
"""
