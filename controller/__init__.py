"""The controller: what is known (state), what is to be written (plan, pure), and the writing."""
