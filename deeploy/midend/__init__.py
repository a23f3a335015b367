"""From a lowered graph to a plan: kernel selection, placement of views, memory."""
