"""How often rules of decision are wrong, and what they find, on recorded step times."""
