package main

// scenarios is the battery, in the order in which it is run.
var scenarios = []scenario{
	steady,
	stopping,
	contexts,
	handlers,
	poison,
	randomCut,
	resetAtStep,
	detach,
	endClose,
	missingQueue,
	silence,
	slow,
	refuse,
	interleavings,
	alarm,
	credentials,
	kill,
	soak,
}
