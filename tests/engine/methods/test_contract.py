"""Every method here passes the tests that are shipped for methods from elsewhere."""

from engine.methods import REGISTRY
from engine.testing import MethodContract


class TestMethods(MethodContract):
    methods = tuple(REGISTRY)
