"""Values of the command line: typed, ranged, and refused together before anything is made or loaded."""
