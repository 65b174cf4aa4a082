package main

var faultsOfWaits = []fault{}
