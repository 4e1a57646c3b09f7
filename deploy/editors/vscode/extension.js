"use strict";

// Starts `qdpolicy lsp` and has it told of policy files and router configurations. All the rest is the server's.

const { workspace, window } = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

exports.activate = async () => {
  const [command, ...args] = workspace.getConfiguration("qdpolicy").get("command", ["qdpolicy", "lsp"]);
  client = new LanguageClient(
    "qdpolicy",
    "qdpolicy",
    { command, args, transport: TransportKind.stdio },
    {
      documentSelector: [
        { language: "json", pattern: "**/*.json" },
        { language: "jsonc", pattern: "**/*.json" },
        { language: "qdrouterd-conf" },
        { language: "qdrouterd-policy" },
      ],
      synchronize: { fileEvents: workspace.createFileSystemWatcher("**/*.{json,conf,toml}") },
    },
  );
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    window.showErrorMessage(`qdpolicy: ${command} cannot be started: pip install 'palisade-router[editors]' (${error})`);
  }
};

exports.deactivate = () => client?.stop();
