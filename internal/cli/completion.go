package cli

import (
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCmd prints the script that teaches a shell to complete whippet's arguments.
type completionCmd struct {
	Shell string `arg:"" name:"shell" enum:"bash,zsh,fish,powershell,elvish" help:"bash, zsh, fish, powershell or elvish."`
}

// Run prints the script.
func (c *completionCmd) Run(inv *invocation) error {
	_, err := io.WriteString(inv.Stdout, completionScripts[c.Shell])
	return err
}

// Help says how the script is loaded.
func (c *completionCmd) Help() string {
	return "Load it with, for example: source <(whippet completion bash); whippet completion fish | source."
}

// shellsFlag is the reference's way to the same scripts: --generate SHELL.
type shellsFlag string

// IgnoreDefault keeps the hook from running when the flag was not given.
func (shellsFlag) IgnoreDefault() {}

// BeforeReset prints the script and ends parsing.
func (shellsFlag) BeforeReset(ctx *kong.Context, trace *kong.Path, p *Process) error {
	shell := fmt.Sprint(ctx.FlagValue(trace.Flag))
	script, ok := completionScripts[shell]
	if !ok {
		return fmt.Errorf("there is no completion script for %q: choose bash, elvish, fish, powershell or zsh", shell)
	}
	if _, err := io.WriteString(p.Stdout, script); err != nil {
		return err
	}
	return errShown
}

// completeCommand is what the scripts call: "whippet __complete WORD...", where the last word is the one under the
// cursor, possibly empty.
const completeCommand = "__complete"

// complete prints the candidates for the last of words, one a line, each with a tab and its description. Nothing
// printed means that the shell should offer files.
func complete(w io.Writer, app *kong.Application, words []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	node, last := app.Node, words[len(words)-1]
	var pending *kong.Flag // the flag whose value comes next
	for _, word := range words[:len(words)-1] {
		if pending != nil {
			pending = nil
			continue
		}
		switch {
		case strings.HasPrefix(word, "--"):
			name, _, given := strings.Cut(word[2:], "=")
			if f := flagNamed(node, name); takesValue(f) && !given {
				pending = f
			}
		case len(word) > 1 && word[0] == '-':
			if expanded, wants := expandGroup(node, word); wants {
				name := expanded[len(expanded)-1]
				if pending = flagNamed(node, strings.TrimPrefix(name, "--")); pending == nil {
					pending = flagShort(node, []rune(name)[1])
				}
			}
		default:
			if child := childNamed(node, word); child != nil {
				node = child
			}
		}
	}
	for _, c := range candidates(node, pending, last) {
		_, _ = fmt.Fprintln(w, c)
	}
}

func candidates(node *kong.Node, pending *kong.Flag, last string) (out []string) {
	add := func(text, help string) {
		if strings.HasPrefix(text, last) {
			out = append(out, text+"\t"+help)
		}
	}
	switch {
	case pending != nil:
		for _, v := range pending.EnumSlice() {
			add(v, "")
		}
		return out
	case strings.HasPrefix(last, "-"):
		for n := node; n != nil; n = n.Parent {
			for _, f := range n.Flags {
				if !f.Hidden {
					add("--"+f.Name, f.Help)
				}
			}
		}
		sort.Strings(out)
		return out
	}
	for _, c := range node.Children {
		if !c.Hidden {
			add(c.Name, c.Help)
		}
	}
	for _, a := range node.Positional {
		for _, v := range a.EnumSlice() {
			add(v, "")
		}
	}
	return out
}

// completionScripts holds one script per shell; all of them ask the program itself.
var completionScripts = map[string]string{
	"bash": `# bash completion for whippet
_whippet() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${line%%$'\t'*}")
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _whippet whippet
`,
	"zsh": `#compdef whippet
_whippet() {
    local -a lines described
    local line
    lines=("${(@f)$(${words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in $lines; do
        [[ -n $line ]] && described+=("${line/$'\t'/:}")
    done
    if (( ${#described} )); then
        _describe 'whippet' described
    else
        _files
    fi
}
if [[ $funcstack[1] == _whippet ]]; then
    _whippet "$@"
else
    compdef _whippet whippet
fi
`,
	"fish": `# fish completion for whippet
function __whippet_complete
    set -l words (commandline -opc)
    set -l found ($words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null)
    if test (count $found) -gt 0
        string join \n -- $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c whippet -f -a '(__whippet_complete)'
`,
	"powershell": `# PowerShell completion for whippet
Register-ArgumentCompleter -Native -CommandName whippet -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 | ForEach-Object { $_.ToString() })
    if ($wordToComplete -eq '') { $words += '""' }
    & $commandAst.CommandElements[0].ToString() __complete @words 2>$null | ForEach-Object {
        $name, $help = $_ -split "` + "`t" + `", 2
        if (-not $help) { $help = $name }
        [System.Management.Automation.CompletionResult]::new($name, $name, 'ParameterValue', $help)
    }
}
`,
	"elvish": `# elvish completion for whippet
use str
set edit:completion:arg-completer[whippet] = {|@words|
    (external $words[0]) __complete $@words[1..] 2>/dev/null | each {|line|
        put (str:split "\t" $line | take 1)
    }
}
`,
}
