"""The brush: a picture whose pixels are erased by painting over them, a component made of a canvas.

Its value is {"picture": address of a picture, or "", "erased": numbers of its pixels, row by row}.
"""

SIZES = (1, 2, 4, 8, 16, 32)
"""Widths of the brush in pixels of the picture."""

TEMPLATE = f"""
<canvas aria-label="picture to paint on"></canvas>
<p>Drag to erase, with Shift to restore.
<label>Brush <select>{"".join(f"<option>{size}</option>" for size in SIZES)}</select> pixels wide</label>
<button type="button">Restore all</button></p>
"""

STYLE = """
canvas { max-width: 100%; touch-action: none; cursor: crosshair; display: block; }
select, button { border: 1px solid; border-radius: .25rem; padding: 0 .5rem; background: transparent; }
label { margin: 0 .5rem; }
"""

SCRIPT = (
    f"const SIZES = {[*SIZES]};"
    + """
const LEAST = 512, COLOUR = 'rgb(229 72 77 / 70%)';
let picture = new Image(), erased = new Set(), size = null, painting = false;

function draw() {
  const canvas = element.querySelector('canvas'), {naturalWidth: width, naturalHeight: height} = picture;
  if (!canvas || !width) return;
  element.querySelector('select').value = size;
  const scale = Math.ceil(LEAST / width);
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext('2d');
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  context.fillStyle = COLOUR;
  for (const i of erased) context.fillRect(i % width * scale, Math.floor(i / width) * scale, scale, scale);
}

function load() {
  const next = new Image();
  erased = new Set(props.value?.erased ?? []);
  next.onload = () => {
    picture = next;
    size ??= Math.max(...SIZES.filter(each => each <= Math.max(1, picture.naturalWidth / 12)));
    draw();
  };
  if (props.value?.picture) next.src = props.value.picture;
}

function paint(event) {
  const box = element.querySelector('canvas').getBoundingClientRect();
  const {naturalWidth: width, naturalHeight: height} = picture;
  const x = (event.clientX - box.left) / box.width * width, y = (event.clientY - box.top) / box.height * height;
  for (let row = Math.max(0, Math.floor(y - size / 2)); row <= Math.min(height - 1, y + size / 2); row++)
    for (let column = Math.max(0, Math.floor(x - size / 2)); column <= Math.min(width - 1, x + size / 2); column++) {
      const here = row === Math.floor(y) && column === Math.floor(x);
      if (!here && Math.hypot(column + .5 - x, row + .5 - y) > size / 2) continue;
      if (event.shiftKey) erased.delete(row * width + column); else erased.add(row * width + column);
    }
}

function save() {
  props.value = {...props.value, erased: [...erased]};
  requestAnimationFrame(draw);
}

element.addEventListener('pointerdown', event => {
  if (event.target.tagName !== 'CANVAS') return;
  event.target.setPointerCapture(event.pointerId);
  painting = true;
  paint(event);
  draw();
});
element.addEventListener('pointermove', event => {
  if (!painting) return;
  for (const each of event.getCoalescedEvents()) paint(each);
  draw();
});
element.addEventListener('pointerup', () => { if (painting) { painting = false; save(); } });
element.addEventListener('change', event => {
  if (event.target.tagName === 'SELECT') size = Number(event.target.value);
});
element.addEventListener('click', event => { if (event.target.tagName === 'BUTTON') { erased.clear(); save(); } });
watch('value', load);
load();
"""
)
