"""What learned words are tested on: held-out text, analogies, similarities; `made_text` has known ones."""
