"""Methods of other papers, each in a module of its own."""
