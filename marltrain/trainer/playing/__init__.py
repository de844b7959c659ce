"""Episodes outside of training: shown on a screen, played by people, recorded as demonstrations."""
