package statusapi

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The types of metrics that Prometheus tells apart.
const (
	gauge   = "gauge"
	counter = "counter"
)

// page is an answer in the text format of Prometheus, version 0.0.4.
type page struct {
	text []byte
	name string // of the family being written
}

// family begins the samples of one name.
func (p *page) family(name, kind, help string) {
	p.name = name
	p.text = append(p.text, "# HELP "+name+" "+help+"\n# TYPE "+name+" "+kind+"\n"...)
}

// sample writes one value; labels are names and values in turn.
func (p *page) sample(value float64, labels ...string) { p.line(p.name, value, labels...) }

func (p *page) line(name string, value float64, labels ...string) {
	p.text = append(p.text, name...)
	for i := 0; i+1 < len(labels); i += 2 {
		separator := byte(',')
		if i == 0 {
			separator = '{'
		}
		p.text = append(p.text, separator)
		p.text = append(p.text, labels[i]+`="`+escape(labels[i+1])+`"`...)
	}
	if len(labels) > 0 {
		p.text = append(p.text, '}')
	}
	p.text = append(p.text, ' ')
	p.text = append(appendNumber(p.text, value), '\n')
}

func appendNumber(text []byte, v float64) []byte { return strconv.AppendFloat(text, v, 'g', -1, 64) }

var escaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func escape(value string) string { return escaper.Replace(value) }

// histogram writes the buckets, each with what those below it have.
func (p *page) histogram(name, help string, h *histogram) {
	p.family(name, "histogram", help)
	counts, sum := h.read()
	total := uint64(0)
	for i, n := range counts {
		total += n
		bound := "+Inf"
		if i < len(h.bounds) {
			bound = string(appendNumber(nil, h.bounds[i]))
		}
		p.line(name+"_bucket", float64(total), "le", bound)
	}
	p.line(name+"_sum", sum)
	p.line(name+"_count", float64(total))
}

// histogram counts durations by how long they were.
type histogram struct {
	bounds []float64 // in seconds, rising

	mu     sync.Mutex
	counts []uint64 // one more than bounds
	sum    float64
}

func newHistogram(bounds []float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(d time.Duration) {
	bucket, _ := slices.BinarySearch(h.bounds, d.Seconds())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[bucket]++
	h.sum += d.Seconds()
}

func (h *histogram) read() (counts []uint64, sum float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.counts), h.sum
}
