-- filter.lua - what pandoc does to each page of the book:
--
--   ```{.code file=ref/mask.c function=pl_mask_allowed}   the function as it is in that file today, with its comment
--   ```{.code file=ref/mask.h struct=pl_mask}             a struct; type=NAME: a typedef; opening=1: the opening comment
--   ::: {.notebook file=... section="6. LAMB"}            that section's text (first=2: two paragraphs of it); pictures=1: with
--                                                         what its cells drew
--   ::: {.paper file=paper/swarm.md section="Structure"}  a section of another document
--   ::: {.play figure=masks}                              a figure that the reader moves: figures/masks.js (scripts="a b":
--                                                         others that it needs before)
--
-- The first use of a glossary's term in a chapter becomes a link to the glossary, a file's name a link to its source. What is
-- named and not there ends the build.

local out, notes, source, folder, here
local links, quoted, figures = {}, {}, {}

local function fail(...) error(source .. ": " .. string.format(...), 0) end

local function read(path)
    local file = io.open(path)
    if not file then fail("there is no %s", path) end
    local text = file:read("a")
    file:close()
    return text
end

local function exists(path)
    local file = io.open(path)
    if not file then return false end
    local _, trouble = file:read(0) -- a folder opens, but cannot be read
    file:close()
    return not trouble
end

local function lines_of(text)
    local lines = {}
    for line in (text:gsub("\n$", "") .. "\n"):gmatch("(.-)\n") do lines[#lines + 1] = line end
    return lines
end

-- --- pages -----------------------------------------------------------------------------------------

local function page_of(path)
    local chapter = path:match("^paper/book/(.*)%.md$")
    if chapter == "README" then return "index.html" end
    return (chapter or path:gsub("%.md$", ""):gsub("/", "-")) .. ".html"
end

local function is_page(path)
    return path:match("^paper/[^/]*%.md$") and path ~= "paper/README.md" or path:match("^paper/spec/[^/]*%.md$") or
        path:match("^paper/book/%d[^/]*%.md$") or path == "paper/book/README.md"
end

local function title_of(path) return (read(path):match("\n?# ([^\n]*)"):gsub("`", "")) end

local function resolve(path) -- "../ref/mask.c" in paper/book to "ref/mask.c"
    local parts = {}
    for part in (folder .. path):gmatch("[^/]+") do
        if part == ".." then table.remove(parts)
        elseif part ~= "." then parts[#parts + 1] = part end
    end
    return table.concat(parts, "/")
end

-- The address of a file's page in the book; nil for a file that is not there.
local function address(path, anchor)
    if is_page(path) and exists(path) then return page_of(path) .. (anchor or "") end
    if not exists(path) then return nil end
    if path:match("%.png$") or path:match("%.svg$") then return path:gsub("^paper/", "") end
    links[path] = true
    return "source/" .. path .. ".html" .. (anchor and anchor:match("^#L%d+$") or "") -- its lines are its only anchors
end

-- --- code ------------------------------------------------------------------------------------------

-- First and last line of a definition, its comment included.
local function find_code(lines, what, name)
    local first, last
    local word = "%f[%w_]" .. name .. "%f[^%w_]"
    for i, line in ipairs(lines) do
        if what == "function" and line:match("^[%a_].*" .. word .. "%(") and not line:match("^typedef") then
            local j = i -- a prototype ends with a semicolon before any brace
            while lines[j] and not lines[j]:match("[;{]") do j = j + 1 end
            if lines[j] and lines[j]:match("{") then
                first, last = i, j
                if not lines[j]:match("}$") then while lines[last] ~= "}" do last = last + 1 end end
                break
            end
        elseif what == "struct" and (line:match("^struct " .. word .. " {") or line:match("^enum " .. word .. " {")) then
            first, last = i, i
            while not lines[last]:match("};$") do last = last + 1 end
            break
        elseif what == "type" and line:match("^typedef .*" .. word) then
            first, last = i, i
            while not lines[last]:match(";$") do last = last + 1 end
            break
        end
    end
    if not first then return nil end
    while first > 1 and lines[first - 1]:match("^ ?[/*]") and not lines[first - 1]:match("^/%* %-%-%-") do first = first - 1 end
    return first, last
end

local function opening(lines)
    for i, line in ipairs(lines) do if line:match("%*/") then return 1, i end end
end

-- Where the API reference has a name, from Doxygen's index; nil without it.
local function api_of(name)
    if not name or not exists(notes .. "/api.tag") then return nil end
    local index = read(notes .. "/api.tag")
    local _, found = index:find("<name>" .. name .. "</name>", 1, true)
    if not found then return nil end
    local page, anchor = index:match("<anchorfile>([^<]*)</anchorfile>%s*<anchor>([^<]*)</anchor>", found)
    return page and "api/" .. page .. "#" .. anchor
end

local function code(block)
    local file = block.attributes.file
    local lines, first, last = lines_of(read(file))
    for _, what in ipairs { "function", "struct", "type" } do
        local name = block.attributes[what]
        if name then
            first, last = find_code(lines, what, name)
            if not first then fail("%s has no %s %s", file, what, name) end
        end
    end
    if block.attributes.opening then first, last = opening(lines) end
    if not first then fail("%s: nothing is named to be shown", file) end
    quoted[file] = true
    local caption = { pandoc.Link(pandoc.Code(file), address(file, "#L" .. first)), pandoc.Str(string.format(", lines %d–%d", first, last)) }
    local header = file:gsub("%.c$", ".h")
    if header ~= file and exists(header) then
        caption[#caption + 1] = pandoc.Str("; contract: ")
        caption[#caption + 1] = pandoc.Link(pandoc.Code(header), address(header))
    end
    local api = api_of(block.attributes["function"] or block.attributes.type)
    if api then
        caption[#caption + 1] = pandoc.Str("; ")
        caption[#caption + 1] = pandoc.Link("API reference", api)
    end
    local text = table.concat(lines, "\n", first, last)
    return pandoc.Div({ pandoc.Para(caption), pandoc.CodeBlock(text, { class = file:match("%.py$") and "python" or "c" }) }, { class = "code-of" })
end

-- --- sections of notebooks and documents -----------------------------------------------------------

-- The blocks below the heading that begins with `section`, to the next heading of its level.
local function section_of(blocks, section)
    local found, level = pandoc.List(), nil
    for _, block in ipairs(blocks) do
        if block.t == "Header" then
            if level and block.level <= level then break end
            if not level and pandoc.utils.stringify(block):sub(1, #section) == section then
                level = block.level
                goto continue
            end
        end
        if level then found:insert(block) end
        ::continue::
    end
    return level and found
end

-- A notebook's cells, opened: its text, and what its code drew if that is wanted.
local function cells(blocks, pictures)
    local found = pandoc.List()
    for _, block in ipairs(blocks) do
        if block.t == "Div" and block.classes:includes("markdown") then found:extend(block.content)
        elseif block.t == "Div" and pictures then
            block:walk { Image = function(image)
                local kind, bytes = pandoc.mediabag.lookup(image.src)
                if not kind then return end
                local file = assert(io.open(out .. "/figures/" .. image.src, "wb"))
                file:write(bytes)
                file:close()
                found:insert(pandoc.Para { pandoc.Image({ pandoc.Str("What the notebook draws") }, "figures/" .. image.src) })
            end }
        end
    end
    return found
end

local function quote(div, from)
    local file = div.attributes.file
    quoted[file] = true
    local text = read(file)
    local blocks
    if from == "ipynb" then
        blocks = cells(pandoc.read(text, "ipynb").blocks, div.attributes.pictures)
    else
        blocks = pandoc.read(text, "gfm+tex_math_dollars").blocks
    end
    blocks = section_of(blocks, div.attributes.section)
    if not blocks then fail("%s has no section '%s'", file, div.attributes.section) end
    -- links are relative to the file that is quoted
    local own = folder
    folder = file:match("^(.*/)") or ""
    local result = pandoc.List()
    for i, block in ipairs(blocks) do
        if i > (tonumber(div.attributes.first) or #blocks) then break end
        if not (block.t == "Para" and pandoc.utils.stringify(block):match("^Check:")) then -- of the code that is left out
            result:insert(block:walk { Link = function(link)
                if not link.target:match("^%a+:") and not link.target:match("^#") then link.target = "/" .. resolve(link.target) end
                return link
            end })
        end
    end
    folder = own
    return result
end

-- --- the glossary ----------------------------------------------------------------------------------

local function identifier(term) return "term-" .. term:lower():gsub("[^%w]+", "-"):gsub("-$", "") end

-- The names by which a row's term is known: "LAMB, trust ratio" has two; "DHT (Kademlia)", too.
local function names_of(term)
    local names = {}
    for name in term:gmatch("%((%S*%u%S*)%)") do names[#names + 1] = name:gsub("^hivemind%.", "") end
    for name in term:gsub("%b()", ""):gmatch("[^,:;]+") do names[#names + 1] = name end
    for i, name in ipairs(names) do names[i] = name:gsub("^%s+", ""):gsub("%s+$", "") end
    return names
end

local terms = {} -- by name in lower case: the identifier of the row

local function read_glossary()
    for line in read("paper/glossary.md"):gmatch("[^\n]+") do
        local term = line:match("^| (.-) | .- | `")
        if term then
            for _, name in ipairs(names_of(term)) do
                if #name > 1 then terms[name:lower()] = terms[name:lower()] or identifier(term) end
            end
        end
    end
end

local linked = {}

-- A term among the words from i on, the longest first: its row, and how many inlines it spans.
local function term_at(inlines, i)
    for words = 5, 1, -1 do
        local text, j, n = "", i, 0
        while n < words and inlines[j] and (inlines[j].t == "Str" or inlines[j].t == "Space" or inlines[j].t == "SoftBreak") do
            if inlines[j].t == "Str" then text, n = text .. inlines[j].text, n + 1
            else text = text .. " " end
            j = j + 1
        end
        if n == words then
            local bare, after = text:match("^(.-)([%.,;:%)]*)$")
            local before = bare:match("^%(*")
            bare = bare:sub(#before + 1)
            local key = bare:lower()
            local id = terms[key] or terms[key:gsub("s$", "")] or terms[key:gsub("es$", "")]
            if id then return id, j - i, before, bare, after end
        end
    end
end

local function link_terms(inlines)
    local result, i = pandoc.List(), 1
    while i <= #inlines do
        local id, span, before, bare, after
        if inlines[i].t == "Str" then id, span, before, bare, after = term_at(inlines, i) end
        if id and not linked[id] then
            linked[id] = true
            if before ~= "" then result:insert(pandoc.Str(before)) end
            result:insert(pandoc.Link(bare, "paper-glossary.html#" .. id, "", { class = "term" }))
            if after ~= "" then result:insert(pandoc.Str(after)) end
            i = i + span
        else
            result:insert(inlines[i])
            i = i + 1
        end
    end
    return result
end

-- The glossary itself: each row can be linked to.
local function mark_rows(tbl)
    for _, body in ipairs(tbl.bodies) do
        for _, row in ipairs(body.body) do
            local term = pandoc.utils.stringify(row.cells[1].contents)
            row.attr = pandoc.Attr(identifier(term))
        end
    end
    return tbl
end

-- --- the page --------------------------------------------------------------------------------------

local function rewrite_link(link)
    local target = link.target
    if target:match("^%a+:") or target:match("^#") or link.classes:includes("term") or target:match("%.html") then return nil end
    local path, anchor = target:match("^([^#]*)(#?.*)$")
    path = path:sub(1, 1) == "/" and path:sub(2) or resolve(path)
    path = path:gsub("/$", "")
    if exists(path .. "/README.md") then path = path .. "/README.md" end
    link.target = address(path, anchor) or fail("a link to %s", target)
    return link
end

local function rewrite_image(image)
    if image.src:match("^figures/") and exists(out .. "/" .. image.src) then return nil end
    image.src = address(resolve(image.src)) or fail("a picture %s", image.src)
    return image
end

-- `ref/mask.c` in a text leads to that file.
local function link_file(span)
    local path = span.text:gsub("/$", "")
    if not path:match("^[%w_/.-]+%.[%w]+$") or not path:match("/") or path:match("^build/") or path:match("^out/") or not exists(path) then return nil end
    return pandoc.Link(span, address(path)), false
end

local function contents(list, field)
    local entries = pandoc.List()
    for path in pandoc.utils.stringify(list):gmatch("%S+") do
        local title = title_of(path)
        if field == "papers" then title = title:match("^[^:]*") end
        entries:insert { title = title, href = page_of(path), here = path == source or nil, source = path }
    end
    if field == "papers" then entries:sort(function(a, b) return a.title:lower() < b.title:lower() end) end
    return entries
end

function Pandoc(doc)
    out, notes, source = pandoc.utils.stringify(doc.meta.out), pandoc.utils.stringify(doc.meta.notes), pandoc.utils.stringify(doc.meta.source)
    folder, here = source:match("^(.*/)"), page_of(source)
    local is_chapter = source:match("^paper/book/%d") ~= nil
    read_glossary()

    doc = doc:walk {
        CodeBlock = function(block) if block.classes:includes("code") then return code(block) end end,
        Div = function(div)
            if div.classes:includes("notebook") then return quote(div, "ipynb") end
            if div.classes:includes("paper") then return quote(div, "gfm") end
            if div.classes:includes("play") then
                local name = div.attributes.figure
                if not exists("paper/book/figures/" .. name .. ".js") then fail("there is no figure %s", name) end
                for script in (div.attributes.scripts or ""):gmatch("%S+") do figures[#figures + 1] = script end
                figures[#figures + 1] = name
                div.identifier = "figure-" .. name
                div.attributes = {}
                return div
            end
        end,
    }
    doc = doc:walk {
        Link = rewrite_link,
        Image = rewrite_image,
        -- MathML Core has no upright letters but in texts
        Math = function(math) math.text = math.text:gsub("\\mathrm", "\\text") return math end,
    }
    doc = doc:walk {
        traverse = "topdown",
        Link = function(link) return link, false end, -- a link within a link is none
        Code = link_file,
    }
    if is_chapter then
        local function linker(block) block.content = link_terms(block.content) return block end
        doc = doc:walk { Para = linker, Plain = linker }
    end
    if source == "paper/glossary.md" then doc = doc:walk { Table = mark_rows } end
    -- What may be wider than a phone scrolls, by keys, too.
    local function scrolling(block, class) return pandoc.Div({ block }, { class = class, tabindex = "0" }) end
    doc = doc:walk {
        Table = function(tbl) return scrolling(tbl, "wide") end,
        CodeBlock = function(block) block.attributes.tabindex = "0" return block end,
        Para = function(para)
            if #para.content == 1 and para.content[1].t == "Math" then return scrolling(para, "wide") end
        end,
    }

    local meta = doc.meta
    meta.pagetitle = title_of(source)
    meta.chapters, meta.papers = contents(meta.chapters), contents(meta.papers, "papers")
    for i, chapter in ipairs(meta.chapters) do
        if chapter.here then meta.previous, meta.next = meta.chapters[i - 1], meta.chapters[i + 1] end
    end
    for _, paper in ipairs(meta.papers) do if paper.here then meta.paper = true end end
    if source == "paper/book/README.md" then meta.front, meta.next = true, meta.chapters[1] end
    if #figures > 0 then meta.figures = figures end

    local base = notes .. "/" .. here:gsub("%.html$", "")
    local file = assert(io.open(base .. ".sources", "w"))
    for path in pairs(links) do file:write(path, "\n") end
    file:close()
    file = assert(io.open(base .. ".d", "w"))
    for path in pairs(links) do quoted[path] = true end -- a link to a file that has gone has to go, too
    file:write(out, "/", here, ":")
    for path in pairs(quoted) do file:write(" ", path) end
    file:write("\n")
    for path in pairs(quoted) do file:write(path, ":\n") end
    file:close()
    return doc
end
