// Command render prints the templates of a chart, rendered as Helm renders them.
//
// Tests use it where Helm is not installed. It implements Go's templates, sprig's functions, include, toYaml and fromYaml,
// and values.yaml merged with a values file, but no hooks, subcharts or lookups. With --notes it prints NOTES.txt.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"github.com/ghodss/yaml"
)

func main() {
	kind := ".yaml"
	if len(os.Args) > 1 && os.Args[1] == "--notes" {
		kind, os.Args = ".txt", append(os.Args[:1], os.Args[2:]...)
	}
	if len(os.Args) < 4 {
		fail("usage: render [--notes] CHART RELEASE NAMESPACE [VALUES]")
	}
	chart, release, namespace := os.Args[1], os.Args[2], os.Args[3]
	values := read(filepath.Join(chart, "values.yaml"))
	if len(os.Args) > 4 {
		overlay(values, read(os.Args[4]))
	}
	about := read(filepath.Join(chart, "Chart.yaml"))
	facts := map[string]interface{}{
		"Values":  values,
		"Release": map[string]interface{}{"Name": release, "Namespace": namespace, "Service": "Helm"},
		"Chart":   map[string]interface{}{"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
	}
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	check(err)
	render(files, kind, facts)
}

func render(files []string, kind string, facts map[string]interface{}) {
	templates := template.New("chart").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	functions["toYaml"] = func(value interface{}) string {
		text, err := yaml.Marshal(value)
		check(err)
		return strings.TrimSuffix(string(text), "\n")
	}
	functions["fromYaml"] = func(text string) map[string]interface{} {
		value := map[string]interface{}{}
		check(yaml.Unmarshal([]byte(text), &value))
		return value
	}
	functions["include"] = func(name string, data interface{}) (string, error) {
		var text bytes.Buffer
		err := templates.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	templates.Funcs(functions)
	for _, file := range files {
		content, err := os.ReadFile(file)
		check(err)
		template.Must(templates.New(filepath.Base(file)).Parse(string(content)))
	}
	for _, file := range files {
		if filepath.Ext(file) == kind {
			if kind == ".yaml" {
				fmt.Println("---")
			}
			check(templates.ExecuteTemplate(os.Stdout, filepath.Base(file), facts))
		}
	}
}

func read(path string) map[string]interface{} {
	content, err := os.ReadFile(path)
	check(err)
	values := map[string]interface{}{}
	check(yaml.Unmarshal(content, &values))
	return values
}

func overlay(under, over map[string]interface{}) {
	for name, value := range over {
		inner, isMap := value.(map[string]interface{})
		if below, both := under[name].(map[string]interface{}); isMap && both {
			overlay(below, inner)
		} else {
			under[name] = value
		}
	}
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, "render:", text)
	os.Exit(1)
}
