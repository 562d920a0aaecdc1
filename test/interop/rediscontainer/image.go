package rediscontainer

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"time"

	"github.com/moby/moby/client"
)

const (
	// publicImage is used where it is there or can be pulled.
	publicImage = "redis:7-alpine"
	// ownImage is made of this machine's redis-server where it cannot.
	ownImage = "podlease-test/redis:local"
	// pullTimeout bounds the pull; a registry that cannot be reached says so soon, or
	// never.
	pullTimeout = time.Minute
)

// image returns the name of an image that the daemon has.
func image(ctx context.Context, docker *client.Client) (string, error) {
	for _, name := range []string{publicImage, ownImage} {
		if _, err := docker.ImageInspect(ctx, name); err == nil {
			return name, nil
		}
	}
	pullErr := pull(ctx, docker)
	if pullErr == nil {
		return publicImage, nil
	}
	if err := build(ctx, docker); err != nil {
		return "", fmt.Errorf("%s can neither be pulled (%w) nor made: %w", publicImage, pullErr, err)
	}
	return ownImage, nil
}

func pull(ctx context.Context, docker *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	progress, err := docker.ImagePull(ctx, publicImage, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer progress.Close()
	return progress.Wait(ctx)
}

// build imports redis-server with the libraries it needs.
func build(ctx context.Context, docker *client.Client) error {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return err
	}
	root, err := pack(ctx, program)
	if err != nil {
		return err
	}
	result, err := docker.ImageImport(ctx, client.ImageImportSource{Source: root, SourceName: "-"}, ownImage,
		client.ImageImportOptions{Changes: []string{"ENV PATH=/usr/local/bin"}})
	if err != nil {
		return err
	}
	defer result.Close()
	_, err = io.Copy(io.Discard, result)
	return err
}

// pack makes the archive of a file system with a program and its libraries.
func pack(ctx context.Context, program string) (io.Reader, error) {
	program, err := filepath.EvalSymlinks(program)
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("libraries of %s: %w", program, err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, dir := range []string{"data/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o1777}); err != nil {
			return nil, err
		}
	}
	if err := add(w, "usr/local/bin/redis-server", program); err != nil {
		return nil, err
	}
	for _, library := range regexp.MustCompile(`/\S+`).FindAllString(string(out), -1) {
		if err := add(w, path.Join(".", library), library); err != nil {
			return nil, err
		}
	}
	return &archive, w.Close()
}

func add(w *tar.Writer, name, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}
