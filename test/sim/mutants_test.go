package sim

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	kill    = flag.Bool("sim.mutants", false, "break the product in each way of the table, and see the simulation notice")
	hunt    = flag.Uint64("sim.hunt", 0, "look through that many seeds for the first that kills each mutant, instead of trying the one of the table first")
	onlyOne = flag.String("sim.mutant", "", "only mutants whose name contains this")
)

// root is the module's folder, seen from this package's.
const root = "../.."

// broken reads the file that an edit is about, and returns it changed. The old text must
// be there exactly once, so that the table cannot rot.
func (e edit) broken() (string, error) {
	text, err := os.ReadFile(filepath.Join(root, e.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), e.old); n != 1 {
		return "", fmt.Errorf("%s has this %d times, and must have it once:\n%s", e.file, n, e.old)
	}
	return strings.Replace(string(text), e.old, e.new, 1), nil
}

// overlay writes the mutant's files, and what tells the go command to use them.
func (m mutant) overlay(dir string) (string, error) {
	replace := map[string]string{}
	for i, e := range m.edits {
		text, err := e.broken()
		if err != nil {
			return "", err
		}
		original, err := filepath.Abs(filepath.Join(root, e.file))
		if err != nil {
			return "", err
		}
		if replace[original] != "" {
			return "", fmt.Errorf("%s is edited twice: make it one edit", e.file)
		}
		replace[original] = filepath.Join(dir, fmt.Sprintf("%d-%s", i, filepath.Base(e.file)))
		if err := os.WriteFile(replace[original], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, content, 0o600)
}

// build makes the simulation with the mutant in place of the product.
func (m mutant) build(ctx context.Context, dir string) (string, error) {
	overlay, err := m.overlay(dir)
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "sim.test")
	out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return program, nil
}

var killedBy = regexp.MustCompile(`(?m)^ *sim_test\.go:\d+: seed (\d+): (.*)$`)

// run runs seeds against the mutant, and returns the lowest that noticed it in the way
// the table says; 0 if none did.
func (m mutant) run(ctx context.Context, program string, from, count uint64) (uint64, error) {
	out, err := exec.CommandContext(ctx, program, "-test.run", "TestSeeds$", "-sim.world", m.world,
		"-sim.first", strconv.FormatUint(from, 10), "-sim.seeds", strconv.FormatUint(count, 10)).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	var lowest uint64
	for _, match := range killedBy.FindAllStringSubmatch(string(out), -1) {
		seed, _ := strconv.ParseUint(match[1], 10, 64) // digits
		if strings.Contains(match[2], m.harm) && (lowest == 0 || seed < lowest) {
			lowest = seed
		}
	}
	if lowest == 0 && err != nil {
		return 0, fmt.Errorf("failed in another way than %q: %w\n%.4000s", m.harm, err, out)
	}
	return lowest, nil
}

// hunt returns the seed of the table if that notices the mutant, and otherwise, or when
// asked to, the first that does: a change of the product changes the course of seeds.
func (m mutant) hunt(ctx context.Context, program string) (uint64, error) {
	count := *hunt
	if count == 0 {
		if seed, err := m.run(ctx, program, m.seed, 1); seed != 0 || err != nil {
			return seed, err
		}
		count = huntLimit
	}
	seed, err := m.run(ctx, program, 1, count)
	if err == nil && seed == 0 {
		err = fmt.Errorf("survived seeds 1 to %d", count)
	}
	return seed, err
}

// huntLimit is how many seeds a mutant may survive.
const huntLimit = 200

// TestMutantsFit checks that every mutant still fits the product.
func TestMutantsFit(t *testing.T) {
	for _, m := range mutants {
		if _, err := m.overlay(t.TempDir()); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if _, ok := worlds[m.world]; !ok {
			t.Errorf("%s: there is no world %q", m.name, m.world)
		}
	}
}

// TestMutantsDie breaks the product on purpose: a simulation that does not notice proves
// nothing by finding nothing.
func TestMutantsDie(t *testing.T) {
	if !*kill {
		t.Skip("runs with -sim.mutants: it builds each mutant")
	}
	for _, m := range mutants {
		if !strings.Contains(m.name, *onlyOne) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			program, err := m.build(t.Context(), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			seed, err := m.hunt(t.Context(), program)
			if err != nil {
				t.Fatal(err)
			}
			if seed != m.seed {
				t.Logf("the table's seed %d did not notice, or is not the first that does", m.seed)
			}
			t.Logf("| %s | %s | %d | %s | %.0f s", m.name, m.world, seed, m.harm, time.Since(began).Seconds())
		})
	}
}
