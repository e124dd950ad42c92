package main

// scenarios is the battery, in the order in which it is run.
var scenarios = []scenario{
	steady,
	slow,
	contexts,
	handlers,
	poison,
	randomCut,
}
