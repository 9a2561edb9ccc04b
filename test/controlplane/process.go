package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a process may take to end by itself after SIGTERM.
const stopGrace = 10 * time.Second

// Command is a program to run beside the control plane.
type Command struct {
	// Name names the process in messages and its log file. Empty means the
	// last element of Path. A second process of the same name gets a number.
	Name string
	// Path is the program.
	Path string
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// Ready, if set, is asked again and again until it returns nil. Its last
	// error is reported when the process is not ready in time.
	Ready func(context.Context) error

	role bool // a role of our own binary, which understands the lifeline
}

// Process is a program that was started and will not outlive this process.
type Process struct {
	// Name is what the process is called in messages.
	Name string
	// LogFile receives everything the process writes.
	LogFile string

	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; set before done is closed
}

// Run starts a program that ends with the control plane, and waits until it is
// ready if c says how to know. ctx bounds that wait, not the program's life.
func (cp *ControlPlane) Run(ctx context.Context, c Command) (*Process, error) {
	p, err := cp.launch(c)
	if err != nil {
		return nil, err
	}
	cp.mu.Lock()
	cp.clients = append(cp.clients, p)
	cp.mu.Unlock()
	if c.Ready == nil {
		return p, nil
	}
	ctx, cancel := context.WithTimeout(ctx, cp.opts.StartTimeout)
	defer cancel()
	if err := p.await(ctx, c.Ready); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// role is a command that our own binary plays.
func role(name string, args []string) Command {
	return Command{Name: name, Args: append([]string{name}, args...), role: true}
}

// launch starts c and returns at once.
func (cp *ControlPlane) launch(c Command) (*Process, error) {
	if c.role {
		c.Path = cp.binary
	}
	if c.Name == "" {
		c.Name = filepath.Base(c.Path)
	}
	cp.mu.Lock()
	cp.names[c.Name]++
	if n := cp.names[c.Name]; n > 1 {
		c.Name = fmt.Sprintf("%s-%d", c.Name, n)
	}
	cp.mu.Unlock()
	c.Env = append([]string{"TMPDIR=" + filepath.Join(cp.dir, "tmp")}, c.Env...)
	return launch(c, filepath.Join(cp.dir, "logs", c.Name+".log"))
}

func launch(c Command, logFile string) (*Process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = diesWithUs()
	if c.role {
		line, err := lifeline()
		if err != nil {
			return nil, err
		}
		cmd.ExtraFiles = []*os.File{line}
		cmd.Env = append(cmd.Env, lifelineEnv+"=3")
	}
	return begin(cmd, c.Name, logFile)
}

func begin(cmd *exec.Cmd, name, logFile string) (*Process, error) {
	if err := startOnLastingThread(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Name: name, LogFile: logFile, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// lifelineEnv tells our binary which descriptor to watch: it ends when that
// one reports the end of file.
const lifelineEnv = "NODEWARDEN_LIFELINE"

var lifelinePipe = sync.OnceValues(func() ([2]*os.File, error) {
	r, w, err := os.Pipe()
	return [2]*os.File{r, w}, err
})

// lifeline is the reading end of a pipe whose writing end only this process
// holds and never closes: readers see its end exactly when this process ends.
func lifeline() (*os.File, error) {
	pipe, err := lifelinePipe()
	return pipe[0], err
}

type startRequest struct {
	cmd *exec.Cmd
	err chan error
}

// starter is a goroutine that owns an operating system thread for as long as
// the process lives. The kernel sends a child's parent-death signal when the
// *thread* that forked it ends, so nobody else may fork.
var starter = sync.OnceValue(func() chan<- startRequest {
	requests := make(chan startRequest)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.err <- r.cmd.Start()
		}
	}()
	return requests
})

func startOnLastingThread(cmd *exec.Cmd) error {
	r := startRequest{cmd: cmd, err: make(chan error, 1)}
	starter() <- r
	return <-r.err
}

// cleanup is what the janitor runs: it waits for this process to end, then
// lets go of the volumes that a killed kubelet left mounted, and of the folder.
const cleanup = `cat >/dev/null
sleep 1
if [ -r /proc/mounts ]; then
  awk -v dir="$1/" 'index($2, dir) == 1 { print $2 }' /proc/mounts | sort -r | while read -r m; do umount "$m"; done
fi
rm -rf -- "$1"`

// startJanitor removes dir once this process is gone without having done so.
// It is in a session of its own, so that an interrupt from the keyboard spares it.
func startJanitor(dir string) (*Process, error) {
	line, err := lifeline()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sh", "-c", cleanup, "nodewarden-janitor", dir)
	cmd.Stdin = line
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return begin(cmd, "janitor", "")
}

// TempDir makes a folder that goes with this process, however it ends, and sooner
// if remove is called.
func TempDir(pattern string) (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", pattern); err != nil {
		return "", nil, err
	}
	janitor, err := startJanitor(dir)
	if err != nil {
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	return dir, func() { _ = os.RemoveAll(dir); janitor.Kill() }, nil
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the process and returns nil if it exited with 0.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// ExitCode is the process's exit code: -1 while it runs and when a signal
// ended it.
func (p *Process) ExitCode() int {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	default:
		return -1
	}
}

// State is "running" or how the process ended.
func (p *Process) State() string {
	select {
	case <-p.done:
		return p.cmd.ProcessState.String()
	default:
		return "running"
	}
}

// Signal sends a signal, such as syscall.SIGSTOP.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process with SIGKILL and returns when it is gone.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // fails only if it is gone already
	<-p.done
}

// Stop ends the process with SIGTERM, or with SIGKILL if it has not ended
// after ten seconds, and returns when it is gone.
func (p *Process) Stop() {
	// These fail only if it is gone already. One that SIGSTOP froze has to be
	// thawed before it can react.
	_ = p.Signal(syscall.SIGTERM)
	_ = p.Signal(syscall.SIGCONT)
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		p.Kill()
	}
}

// Tail is the last lines that the process wrote.
func (p *Process) Tail(lines int) string {
	data, err := readEnd(p.LogFile, 64<<10)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	all := strings.Split(strings.TrimRight(data, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func readEnd(file string, size int64) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	from := max(0, info.Size()-size)
	data := make([]byte, info.Size()-from)
	n, err := f.ReadAt(data, from)
	if err != nil && n < len(data) {
		return "", err
	}
	return string(data), nil
}

// errTail is how many lines of a log an error carries.
const errTail = 25

// await asks ready until it agrees. It gives up when the process ends or ctx
// does, and then says what the process wrote last.
func (p *Process) await(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	alive, cancel := p.whileAlive(ctx)
	defer cancel()
	last := errors.New("it was never asked")
	for {
		err := ready(alive)
		switch {
		case p.State() != "running": // whoever answered was somebody else
		case err == nil:
			return nil
		case alive.Err() == nil:
			last = err
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended before it was ready (%s); it wrote last:\n%s", p.Name, p.State(), p.Tail(errTail))
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready in time (%w): %w; it wrote last:\n%s", p.Name, context.Cause(ctx), last, p.Tail(errTail))
		case <-tick.C:
		}
	}
}

// whileAlive ends with the process, so that nobody goes on asking a dead one:
// whoever took its port might never answer.
func (p *Process) whileAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// stopTogether stops all processes at once: each may take its time.
func stopTogether(all []*Process) {
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(p.Stop)
	}
	wg.Wait()
}
