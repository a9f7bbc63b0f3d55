"""How the encoders that come with the package are made; outside the wheel."""
