package main

import (
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
)

// Made once by openssl for this file, and of no other use: a certificate, and private keys in every form.
const certPEM = `-----BEGIN CERTIFICATE-----
MIIBLjCB4aADAgECAhRp1wfQltcRuoUC8oJelreRRfp9mjAFBgMrZXAwDDEKMAgG
A1UEAwwBYTAgFw0yNjExMjQyMDU0MTZaGA8yMTI2MTAzMTIwNTQxNlowDDEKMAgG
A1UEAwwBYTAqMAUGAytlcAMhAEYIgIebvUc+VpJEglflZ/TXHMNmzHfBwAUknXfz
b5poo1MwUTAdBgNVHQ4EFgQU4nLuKLgF3BVoOM/7lhs3XYv1VAMwHwYDVR0jBBgw
FoAU4nLuKLgF3BVoOM/7lhs3XYv1VAMwDwYDVR0TAQH/BAUwAwEB/zAFBgMrZXAD
QQBfrM22fNKmzGr3myRRwO4he2+ygpzLYWirY4FZbHRxiTlRCQxdUx9MS3zsSkFG
MNkcYlqQij7oNYuXSUPqAD0P
-----END CERTIFICATE-----
`

const ecPEM = `-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIAul9MFMBu1htvd+MYk4wN4Qn0TZ5XcLqfAjaN+qBZSfoAoGCCqGSM49
AwEHoUQDQgAE9EdC6MPe/Sx5swBWgU9HZYOiZ8hCpvPHE3JaxscwAiS3OF/3evtx
yAz4mtZtjzlsRUnBja2Y9SZt22vqSHZ1Ug==
-----END EC PRIVATE KEY-----
`

const wrappedECPEM = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgC6X0wUwG7WG2934x
iTjA3hCfRNnldwup8CNo36oFlJ+hRANCAAT0R0Low979LHmzAFaBT0dlg6JnyEKm
88cTclrGxzACJLc4X/d6+3HIDPia1m2POWxFScGNrZj1Jm3ba+pIdnVS
-----END PRIVATE KEY-----
`

const ed25519PEM = `-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEICCACnZVNzM8sUYMeeyqShyVQK4Dsl43ZP3dwCOzwFCl
-----END PRIVATE KEY-----
`

const x25519PEM = `-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VuBCIEIADBCBfoEx+DydERmgj4i7nAaafLhDt6D/mbYhSvawF+
-----END PRIVATE KEY-----
`

const rsaPEM = `-----BEGIN RSA PRIVATE KEY-----
MIICXQIBAAKBgQDAwYOfLrrEMey81EDc5hSfKNFannafCAFi+qxiITYysKk4lSKU
ognIyJF6fQcjTrFRhMRFOnfmVA12rPn7ijM9MsxDoX0zyPopfEdq6DWQOC9f+twU
y9totnnmlpvJoUpOJ3yc1Cdk7Q+NtL3ImDllnhHb5pYRrsK27TPEgiGNnwIDAQAB
AoGBAIBtLpYTm2p23QWe4ayMO3cjygD3jY891TauT8Z93E9/tu+1JbokECLPx2X2
AZh7qNbof6CkaRh0LhhA/bmjhaj5MjPNtDuDd6aDGS91oYC3gvzdN5szNOm1CfRV
6Qvj10BVHFqzys1xRgmtJ7u0MPVsbmJ9OkapSzS3EWcV4k5xAkEA/SNUNz/WFNe8
S6PkORV5k2LxXEgQHsQ6c1AXaPGW5ologhDDzSuB75eNt5WqmqAjRQN9vvP/X4aQ
1zhPHZApRwJBAMLvawP37m9Z1g3JPQTSiHVkvvZag2bt9bE6XptwIkvzhX/rLXT2
K0c53zhwaxNOB5yjUazWdNqzUn7ACbnyJOkCQGgy/7qSY2xG9bJpL0u0JExgIRws
ab5QZgMLh+dh8wzIqSVJA2BUNXNLfkGAsS5fFsWUz1EoHQnUWZDOE/sGWYcCQQC+
KUjAKlDTF1QVRsbbuXWc75bKRCoDcwdGyKYaBB2w8fK9gvJpMuutI+t551DNGEWc
rEW00dBUuLI1K6lRV8JhAkB7dTNN23+YdnVfyRkaLZPJaFSpMY4rqN1XqlnW+6T3
Wn6unCGHI8BMvZQ8+OS+Wk9BohaPLLEeUBuBem8pX7D2
-----END RSA PRIVATE KEY-----
`

const wrappedRSAPEM = `-----BEGIN PRIVATE KEY-----
MIICdwIBADANBgkqhkiG9w0BAQEFAASCAmEwggJdAgEAAoGBAMDBg58uusQx7LzU
QNzmFJ8o0Vqedp8IAWL6rGIhNjKwqTiVIpSiCcjIkXp9ByNOsVGExEU6d+ZUDXas
+fuKMz0yzEOhfTPI+il8R2roNZA4L1/63BTL22i2eeaWm8mhSk4nfJzUJ2TtD420
vciYOWWeEdvmlhGuwrbtM8SCIY2fAgMBAAECgYEAgG0ulhObanbdBZ7hrIw7dyPK
APeNjz3VNq5Pxn3cT3+277UluiQQIs/HZfYBmHuo1uh/oKRpGHQuGED9uaOFqPky
M820O4N3poMZL3WhgLeC/N03mzM06bUJ9FXpC+PXQFUcWrPKzXFGCa0nu7Qw9Wxu
Yn06RqlLNLcRZxXiTnECQQD9I1Q3P9YU17xLo+Q5FXmTYvFcSBAexDpzUBdo8Zbm
iWiCEMPNK4Hvl423laqaoCNFA32+8/9fhpDXOE8dkClHAkEAwu9rA/fub1nWDck9
BNKIdWS+9lqDZu31sTpem3AiS/OFf+stdPYrRznfOHBrE04HnKNRrNZ02rNSfsAJ
ufIk6QJAaDL/upJjbEb1smkvS7QkTGAhHCxpvlBmAwuH52HzDMipJUkDYFQ1c0t+
QYCxLl8WxZTPUSgdCdRZkM4T+wZZhwJBAL4pSMAqUNMXVBVGxtu5dZzvlspEKgNz
B0bIphoEHbDx8r2C8mky660j63nnUM0YRZysRbTR0FS4sjUrqVFXwmECQHt1M03b
f5h2dV/JGRotk8loVKkxjiuo3VeqWdb7pPdafq6cIYcjwEy9lDz45L5aT0GiFo8s
sR5QG4F6bylfsPY=
-----END PRIVATE KEY-----
`

// A call with what is decoded from base64.
func build(cert, key string) string {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("buildCustomCert %q %q", encode([]byte(cert)), encode([]byte(key)))
}

// A block of this kind with that in it.
func block(kind string, content any) string {
	bytes, is := content.([]byte)
	if !is {
		marshalled, err := asn1.Marshal(content)
		if err != nil {
			panic(err)
		}
		bytes = marshalled
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
}

// What is in a block.
func inside(text string) []byte {
	decoded, _ := pem.Decode([]byte(text))
	return decoded.Bytes
}

// A key of six numbers, or as many.
type numbers = []int

// A PKCS#8 key.
type wrapped struct {
	Version   int
	Algorithm struct {
		Name       asn1.ObjectIdentifier
		Parameters asn1.RawValue `asn1:"optional"`
	}
	Key []byte
}

func wrap(name asn1.ObjectIdentifier, key []byte) string {
	it := wrapped{Key: key}
	it.Algorithm.Name = name
	return block("PRIVATE KEY", it)
}

// A SEC 1 key.
type ec struct {
	Version int
	Key     []byte
	Curve   asn1.ObjectIdentifier `asn1:"optional,explicit,tag:0"`
}

// Shown in every way, as only what is good gives a struct.
var certificatesCases = func() []string {
	good := build(certPEM, ed25519PEM)
	cases := []string{
		`{{ ` + good + ` }}`,
		`{{ with ` + good + ` }}{{ .Cert }}{{ .Key | b64enc }}{{ end }}`,
		`{{ (` + good + `).Cert | b64enc }}{{ (` + good + `).Key | len }}`,
		`{{ ` + good + ` | toJson }} {{ ` + good + ` | toPrettyJson }}`,
		`{{ $c := ` + good + ` }}{{ printf "%+v %#v %q %d %x %T" $c $c $c $c $c $c }}`,
		`{{ $c := ` + good + ` }}{{ typeOf $c }} {{ kindOf $c }} {{ empty $c }} {{ eq $c $c }} {{ eq $c now }} {{ deepEqual $c $c }} {{ if $c }}yes{{ end }} {{ list $c | len }}`,
		`{{ (` + good + `).Foo }}`, `{{ (` + good + `).Cert 1 }}`, `{{ 1 | (` + good + `).Key }}`, `{{ range ` + good + ` }}{{ end }}`,
		`{{ len (` + good + `) }}`, `{{ lt (` + good + `) 1 }}`, `{{ index (` + good + `) "Cert" }}`, `{{ quote (` + good + `) | len }}`,
		`{{ buildCustomCert "?" "" }}`, `{{ buildCustomCert "" "?" }}`, `{{ buildCustomCert "" "" }}`, `{{ buildCustomCert "" }}`, `{{ buildCustomCert 1 "" }}`, `{{ buildCustomCert nil nil }}`,
	}
	folded := strings.ReplaceAll(certPEM, "\n", "\r\n")
	for _, cert := range []string{
		folded, "text before\n" + certPEM + "text after", certPEM + certPEM, "-----BEGIN CERTIFICATE-----\n" + certPEM,
		"-----BEGIN A-----\n?\n-----END A-----\n" + certPEM, strings.Replace(certPEM, "CERTIFICATE-----\n", "CERTIFICATE-----\na: b\nc : d\n\n", 1),
		block("ANYTHING", inside(certPEM)), strings.Replace(certPEM, "MII", " M\tI I", 1), strings.TrimSpace(certPEM), certPEM[:len(certPEM)-1] + " \t",
		certPEM[:100], "x" + certPEM, strings.Replace(certPEM, "END CERTIFICATE", "END CERT", 1), certPEM[:len(certPEM)-1] + "x", "-----BEGIN A-----\n-----END A-----",
		"-----BEGIN A-----\na: b\n-----END A-----\n", "-----BEGIN A----\n\n-----END A-----\n", strings.Replace(certPEM, "MII", "M?I", 1), "",
		block("CERTIFICATE", append(inside(certPEM), 0)), block("CERTIFICATE", []byte("text")), block("CERTIFICATE", inside(certPEM)[:99]), block("CERTIFICATE", numbers{1}), ed25519PEM,
	} {
		cases = append(cases, `{{ (`+build(cert, ed25519PEM)+`).Cert | b64enc }}`)
	}
	for _, key := range []string{
		ecPEM, wrappedECPEM, x25519PEM, rsaPEM, wrappedRSAPEM, ecPEM + rsaPEM, block("DSA PRIVATE KEY", numbers{0, 1, 2, 3, 4, 5}),
		"", "text", block("CERTIFICATE", inside(certPEM)), block("PRIVATE  KEY", inside(ecPEM)), block("FOO PRIVATE KEY", inside(ecPEM)), block("ENCRYPTED PRIVATE KEY", inside(ecPEM)),
		block("PRIVATE KEY", inside(ecPEM)), block("PRIVATE KEY", inside(rsaPEM)), block("RSA PRIVATE KEY", inside(ecPEM)), block("RSA PRIVATE KEY", inside(wrappedRSAPEM)),
		block("EC PRIVATE KEY", inside(wrappedECPEM)), block("EC PRIVATE KEY", inside(rsaPEM)), block("RSA PRIVATE KEY", append(inside(rsaPEM), 0)),
		block("RSA PRIVATE KEY", numbers{2, 1, 2, 3, 4, 5, 6, 7, 8}), block("RSA PRIVATE KEY", numbers{0, -1, 2, 3, 4, 5, 6, 7, 8}), block("RSA PRIVATE KEY", numbers{0, 5, 2, 0, 4, 5, 6, 7, 8}),
		block("EC PRIVATE KEY", ec{Version: 2, Key: []byte{1}}), block("EC PRIVATE KEY", ec{Version: 1, Key: []byte{1}}), block("EC PRIVATE KEY", ec{Version: 1, Key: []byte{1}, Curve: asn1.ObjectIdentifier{1, 3, 132, 0, 10}}),
		wrap(asn1.ObjectIdentifier{1, 2, 3, 1000}, []byte{1}), wrap(asn1.ObjectIdentifier{2, 999, 3}, []byte{1}), wrap(asn1.ObjectIdentifier{1, 3, 101, 112}, []byte{4, 2, 1, 1}), wrap(asn1.ObjectIdentifier{1, 3, 101, 110}, []byte{4, 0}),
		wrap(asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}, inside(ecPEM)), wrap(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, inside(ecPEM)), wrap(asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}, inside(rsaPEM)),
	} {
		cases = append(cases, `{{ (`+build(certPEM, key)+`).Key | b64enc }}`)
	}
	return cases
}()
