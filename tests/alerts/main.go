// Which alerts of a PrometheusRule fire, by Prometheus' own engine, if the metrics on standard input stay as they are for so long:
//
//	go run . RULES DURATION < METRICS
//
// A counter was less by one at the first scrape.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"go.yaml.in/yaml/v3"
)

// Between two scrapes, and between two evaluations.
const interval = 30 * time.Second

type rule struct {
	Alert string
	Expr  string
	For   model.Duration
}

type rules struct {
	Spec struct {
		Groups []struct{ Rules []rule }
	}
}

type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path, duration string) error {
	lasts, err := model.ParseDuration(duration)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var all rules
	if err := yaml.Unmarshal(text, &all); err != nil {
		return err
	}
	start := time.Now()
	end := start.Add(time.Duration(lasts))
	series, err := scraped(start, end)
	if err != nil {
		return err
	}
	for _, group := range all.Spec.Groups {
		for _, rule := range group.Rules {
			if err := evaluate(rule, series, start, end); err != nil {
				return fmt.Errorf("%s: %w", rule.Alert, err)
			}
		}
	}
	return nil
}

func scraped(start, end time.Time) ([]storage.Series, error) {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	var found []storage.Series
	lines := textparse.NewOpenMetricsParser(text, labels.NewSymbolTable())
	for {
		entry, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var of labels.Labels
		lines.Labels(&of)
		_, _, value := lines.Series()
		var samples []chunks.Sample
		for at := start; !at.After(end); at = at.Add(interval) {
			now := value
			if at == start && value > 0 && strings.HasSuffix(of.Get(labels.MetricName), "_total") {
				now--
			}
			samples = append(samples, sample{at.UnixMilli(), now})
		}
		found = append(found, storage.NewListSeries(of, samples))
	}
}

// Prints the alert with its labels for each series that is pending for long enough when the time is over.
func evaluate(rule rule, series []storage.Series, start, end time.Time) error {
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000,
		Timeout:    time.Minute,
		Parser:     parser.NewParser(parser.Options{}),
	})
	source := storage.QueryableFunc(func(int64, int64) (storage.Querier, error) {
		return querier{series}, nil
	})
	since := map[string]time.Time{}
	for at := start; ; at = at.Add(interval) {
		query, err := engine.NewInstantQuery(context.Background(), source, nil, rule.Expr, at)
		if err != nil {
			return err
		}
		vector, err := query.Exec(context.Background()).Vector()
		if err != nil {
			return err
		}
		still := map[string]time.Time{}
		for _, one := range vector {
			key := one.Metric.DropReserved(func(name string) bool { return name == labels.MetricName }).String()
			still[key] = at
			if before, ok := since[key]; ok {
				still[key] = before
			}
			if at.Add(interval).After(end) && at.Sub(still[key]) >= time.Duration(rule.For) {
				fmt.Println(rule.Alert + key)
			}
		}
		query.Close()
		if since = still; at.Add(interval).After(end) {
			return nil
		}
	}
}

type querier struct{ series []storage.Series }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := storage.EmptySeriesSet()
	var found []storage.Series
	for _, one := range q.series {
		matches := true
		for _, matcher := range matchers {
			matches = matches && matcher.Matches(one.Labels().Get(matcher.Name))
		}
		if matches {
			found = append(found, one)
		}
	}
	if len(found) > 0 {
		set = &list{found, -1}
	}
	return set
}

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) Close() error { return nil }

type list struct {
	series []storage.Series
	at     int
}

func (l *list) Next() bool                        { l.at++; return l.at < len(l.series) }
func (l *list) At() storage.Series                { return l.series[l.at] }
func (l *list) Err() error                        { return nil }
func (l *list) Warnings() annotations.Annotations { return nil }
