package main

import (
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Lynq's functions as its contract describes them.
var lynqFunctions = map[string]any{
	"toHost": func(s string) string {
		parsed, err := url.Parse(s)
		if err != nil || parsed.Host == "" {
			before, _, _ := strings.Cut(s, ":")
			return before
		}
		return parsed.Hostname()
	},
	"trunc63": func(s string) string {
		if len(s) > 63 {
			return s[:63]
		}
		return s
	},
	// Of the next version of sprig.
	"sha512sum": func(s string) string {
		sum := sha512.Sum512([]byte(s))
		return hex.EncodeToString(sum[:])
	},
	"fromJson": func(s string) any {
		var value any
		if err := json.Unmarshal([]byte(s), &value); err != nil {
			return map[string]any{}
		}
		return value
	},
	"int": func(v any) string {
		return intMark + strconv.FormatInt(toInt(v), 10)
	},
	"float": func(v any) string {
		text := fmt.Sprint(v)
		number, err := strconv.ParseFloat(text, 64)
		if err != nil {
			number = 0
		}
		return fmt.Sprintf("%s%v", floatMark, number)
	},
	// When the row was first seen.
	"now": func() time.Time {
		return time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	},
	"bool": func(v any) string {
		switch strings.ToLower(fmt.Sprint(v)) {
		case "true", "1", "yes", "on", "t", "y":
			return boolMark + "true"
		}
		return boolMark + "false"
	},
}

const (
	intMark   = "__LYNQ_TYPE_INT__"
	floatMark = "__LYNQ_TYPE_FLOAT__"
	boolMark  = "__LYNQ_TYPE_BOOL__"
)

func toInt(v any) int64 {
	if b, ok := v.(bool); ok {
		if b {
			return 1
		}
		return 0
	}
	text := fmt.Sprint(v)
	if number, err := strconv.Atoi(text); err == nil {
		return int64(number)
	}
	if number, err := strconv.ParseFloat(text, 64); err == nil {
		return int64(number)
	}
	return 0
}

// The leaf of a resource that a rendered text becomes.
func leaf(text string) any {
	if rest, ok := strings.CutPrefix(text, intMark); ok {
		if number, err := strconv.ParseInt(rest, 10, 64); err == nil {
			return number
		}
	}
	if rest, ok := strings.CutPrefix(text, floatMark); ok {
		if number, err := strconv.ParseFloat(rest, 64); err == nil {
			return number
		}
	}
	if rest, ok := strings.CutPrefix(text, boolMark); ok {
		if truth, err := strconv.ParseBool(rest); err == nil {
			return truth
		}
	}
	return text
}
