#!/usr/bin/env zsh
# SPDX-License-Identifier: MIT
#
# completion.zsh DIRECTORY LINE: what zsh offers for the last word of LINE, one a line. zsh
# completes only in a line that is edited, so one is edited in a terminal that zpty makes, with a
# compadd of ours that notes the words that fit. What zsh finds in all its functions is kept for the next
# one, in $HOME.

zmodload zsh/zpty
zpty shell zsh -f -i
begin=$'\x02' end=$'\x03'
zpty -w shell "PS1= PS2= RPS1=; unsetopt zle_bracketed_paste 2>/dev/null; fpath=($1 \$fpath)
autoload -Uz compinit && compinit -u -d \$HOME/completions
compadd() {
	local -a fitting
	builtin compadd -O fitting \"\$@\"
	print -l -- \"\${fitting[@]}\" >>\$OFFERED
	builtin compadd \"\$@\"
}
finish() { zle kill-whole-line; print -n READY >>\$OFFERED.done }
zle -N finish
zstyle ':completion:*' list-prompt ''
zstyle ':completion:*' menu no
LISTMAX=1000000
bindkey '^X' finish
OFFERED=$TMPDIR/offered"
: >$TMPDIR/offered
rm -f $TMPDIR/offered.done
zpty -n -w shell "$2"$'\t\x18'
while [[ ! -e $TMPDIR/offered.done ]]; do
	zpty -r -t shell unused
	sleep 0.01
done
cat $TMPDIR/offered
rm -f $TMPDIR/offered $TMPDIR/offered.done
zpty -d shell
