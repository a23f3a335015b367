"""What would make a compiled network faster: changes, each with the cycles that a plan would save by it, predicted and not guessed."""
