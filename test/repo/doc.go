// Package repo holds what we believe about the repository, as tests: who may
// import whom, that packages say what they are for, that links lead somewhere.
//
// It reads the files itself and runs no tool, so that the test cache notices
// when one of them changes. It says nothing about what the code does.
package repo
