"""Two cooks who make onion soups."""
