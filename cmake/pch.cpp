// Home of the precompiled header.
