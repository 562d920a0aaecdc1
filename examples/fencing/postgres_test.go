package recipes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/podlease/podlease/test/child"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// postgresPrograms finds the folder of initdb and postgres, which Debian keeps out of the
// PATH.
func postgresPrograms() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is well formed
	if len(found) == 0 {
		return "", errors.New("no PostgreSQL server: install Debian's package postgresql, or put initdb and postgres into the PATH")
	}
	return filepath.Dir(slices.Max(found)), nil
}

// unprivileged is who PostgreSQL runs as, which refuses to run as root; nil when this
// process is not root.
func unprivileged() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	Expect(err).NotTo(HaveOccurred())
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	Expect(err).NotTo(HaveOccurred())
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	Expect(err).NotTo(HaveOccurred())
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// startPostgres starts a server of its own, on a socket, that ends with the suite.
func startPostgres(ctx context.Context) *sql.DB {
	GinkgoHelper()
	programs, err := postgresPrograms()
	Expect(err).NotTo(HaveOccurred())
	dir, err := os.MkdirTemp("", "fencing-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	who := unprivileged()
	if who != nil {
		Expect(os.Chown(dir, int(who.Uid), int(who.Gid))).To(Succeed())
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(programs, name), args...)
		cmd.Dir, cmd.Env = dir, []string{"LC_ALL=C"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
		return cmd
	}
	data := filepath.Join(dir, "data")
	out, err := command("initdb", "--pgdata="+data, "--auth=trust", "--username=recipes", "--encoding=UTF8", "--no-sync").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "initdb: %s", out)
	server, err := child.Start(command("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		_ = server.Signal(syscall.SIGQUIT) // at once, and its children with it
		<-server.Done()
	})

	db, err := sql.Open("pgx", fmt.Sprintf("host=%s user=recipes dbname=postgres", dir))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(db.Close)
	Eventually(func(g Gomega) {
		if server.Ended() != nil {
			StopTrying("postgres ended: " + server.Output()).Now()
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		g.Expect(db.PingContext(ctx)).To(Succeed())
	}).Should(Succeed())
	return db
}
