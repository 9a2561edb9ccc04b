package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"
)

// lifelineEnv names the descriptor of a pipe whose other end only our starter
// holds. When the pipe ends, so did the starter, and so do we.
const lifelineEnv = "NODEWARDEN_LIFELINE"

// lastWords is how long a role may take to end in order after its starter died.
const lastWords = 2 * time.Second

func holdLifeline() error {
	value := os.Getenv(lifelineEnv)
	if value == "" {
		return nil
	}
	fd, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("%s=%q: want the number of an open descriptor, or nothing", lifelineEnv, value)
	}
	if err := os.Unsetenv(lifelineEnv); err != nil { // our own children have no such descriptor
		return err
	}
	syscall.CloseOnExec(fd)
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(uintptr(fd), "lifeline")) // an error ends it as well
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err == nil {
			time.Sleep(lastWords)
		}
		os.Exit(1)
	}()
	return nil
}
