-- Neovim 0.7 and newer: policy files and router configurations are checked by `qdpolicy lsp`.
-- Copy to ~/.config/nvim/plugin/qdpolicy.lua. See docs/editors.md.

local command = vim.g.qdpolicy_command or { "qdpolicy", "lsp" }
local client_id

local function start(buffer)
  if client_id == nil or vim.lsp.get_client_by_id(client_id) == nil then
    client_id = vim.lsp.start_client({
      name = "qdpolicy",
      cmd = command,
      root_dir = vim.fn.getcwd(),
      workspace_folders = { { uri = vim.uri_from_fname(vim.fn.getcwd()), name = "work" } },
    })
  end
  if client_id ~= nil then
    vim.lsp.buf_attach_client(buffer, client_id)
    vim.bo[buffer].omnifunc = "v:lua.vim.lsp.omnifunc"
  end
end

local group = vim.api.nvim_create_augroup("qdpolicy", { clear = true })
vim.api.nvim_create_autocmd({ "BufRead", "BufNewFile" }, {
  group = group,
  pattern = { "*.json", "*.conf" },
  callback = function(event) start(event.buf) end,
})
