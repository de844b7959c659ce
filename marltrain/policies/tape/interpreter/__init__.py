"""The compiled interpreter of tables, and the instructions that it carries out."""
