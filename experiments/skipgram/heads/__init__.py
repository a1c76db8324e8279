"""The output layers that are compared, the network around them, and how one of them learns."""
