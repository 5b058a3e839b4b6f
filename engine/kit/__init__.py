"""All that a method may import: the contract, sharing, training, counting, randomness."""
