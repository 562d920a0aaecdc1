package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is who the program runs as: a number, so that the kubelet can check
// runAsNonRoot without a password file.
const user = "65532:65532"

// spec says what to pack.
type spec struct {
	binary, name, arch string
	version            string
	created            time.Time
}

// write makes the image and leaves it at path as a docker archive.
func (s spec) write(path string) error {
	tag, err := name.NewTag(s.name, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("name: %w", err)
	}
	img, err := s.image()
	if err != nil {
		return err
	}
	if err := tarball.WriteToFile(path, tag, img); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func (s spec) image() (v1.Image, error) {
	program, err := os.ReadFile(s.binary)
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	if err := static(program); err != nil {
		return nil, fmt.Errorf("%s: %w", s.binary, err)
	}
	base := filepath.Base(s.binary)
	img := mutate.MediaType(empty.Image, "application/vnd.docker.distribution.manifest.v2+json")
	for _, file := range []file{
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots()},
		{base, 0o755, program},
	} {
		layer, err := file.layer()
		if err != nil {
			return nil, err
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			return nil, fmt.Errorf("add %s: %w", file.path, err)
		}
	}
	return s.configure(img, base)
}

// configure says how the program starts.
func (s spec) configure(img v1.Image, program string) (v1.Image, error) {
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", s.arch
	config.Created = v1.Time{Time: s.created}
	config.Config.User = user
	config.Config.Entrypoint = []string{"/" + program}
	config.Config.Env = []string{"PATH=/"} // so that an exec hook can name the program alone
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.title":    program,
		"org.opencontainers.image.version":  s.version,
		"org.opencontainers.image.source":   "https://github.com/podlease/podlease",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	return mutate.ConfigFile(img, config)
}

// static refuses a program that needs a dynamic loader: the image has none.
func static(program []byte) error {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("not a Linux program: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("needs a dynamic loader: build it with CGO_ENABLED=0")
		}
	}
	return nil
}

// roots are Mozilla's certificate authorities, of the version go.sum pins.
func roots() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
	}
	return out.Bytes()
}

// file is one file of the image, alone in its layer.
type file struct {
	path string
	mode int64
	data []byte
}

func (f file) layer() (v1.Layer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	header := &tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.data)), Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0)}
	if err := w.WriteHeader(header); err != nil {
		return nil, fmt.Errorf("pack %s: %w", f.path, err)
	}
	if _, err := w.Write(f.data); err != nil {
		return nil, fmt.Errorf("pack %s: %w", f.path, err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack %s: %w", f.path, err)
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil })
}
