// promql reads PromQL expressions, one a line, and writes a JSON document a line: the series that the expression
// selects with what it wants of their labels, or what is wrong with it.
package main

import (
	"bufio"
	"encoding/json"
	"os"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

type selector struct {
	Name   string  `json:"name"`
	Labels []label `json:"labels"`
}

type label struct {
	Name string `json:"name"`
	// The comparison as it is written: =, !=, =~, !~.
	Compared string `json:"compared"`
	Value    string `json:"value"`
}

type answer struct {
	Selectors []selector `json:"selectors"`
	Error     string     `json:"error,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := out.Encode(look(lines.Text())); err != nil {
			panic(err)
		}
	}
}

func look(text string) answer {
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return answer{Error: err.Error()}
	}
	found := answer{Selectors: []selector{}}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if vector, ok := node.(*parser.VectorSelector); ok {
			one := selector{Name: vector.Name, Labels: []label{}}
			for _, matcher := range vector.LabelMatchers {
				if matcher.Name != labels.MetricName {
					one.Labels = append(one.Labels, label{matcher.Name, matcher.Type.String(), matcher.Value})
				}
			}
			found.Selectors = append(found.Selectors, one)
		}
		return nil
	})
	return found
}
