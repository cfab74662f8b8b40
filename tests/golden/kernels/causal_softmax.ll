; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, i64 %s0_1, i64 %s1_1, i64 %c0, i64 %c1, i64 %x0, i64 %x1, ptr noalias %w10) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s18 = alloca float, i64 1
  store float 0xFFF0000000000000, ptr %s1
  %v2 = trunc i64 %x0 to i32
  %v3 = trunc i64 %c0 to i32
  %v4 = bitcast i32 %v3 to float
  %v6 = icmp slt i64 0, %n1
  br i1 %v6, label %body5, label %done5
body5:
  %i5 = phi i64 [ 0, %entry ], [ %v15, %body5 ]
  %v7 = add nsw i64 %x1, %i5
  %v8 = trunc i64 %v7 to i32
  %v9 = icmp sle i32 %v8, %v2
  %v10 = getelementptr inbounds float, ptr %p0, i64 %i5
  %v11 = load float, ptr %v10, align 4
  %v12 = select i1 %v9, float %v11, float %v4
  %v13 = load float, ptr %s1
  %v14 = call float @llvm.maximum.f32(float %v13, float %v12)
  store float %v14, ptr %s1
  %v15 = add nuw nsw i64 %i5, 1
  %v16 = icmp slt i64 %v15, %n1
  br i1 %v16, label %body5, label %done5, !llvm.loop !0
done5:
  %v17 = load float, ptr %s1
  store float 0x8000000000000000, ptr %s18
  %v19 = trunc i64 %c1 to i32
  %v20 = bitcast i32 %v19 to float
  %v21 = call float @llvm.maximum.f32(float %v20, float %v17)
  %v23 = icmp slt i64 0, %n1
  br i1 %v23, label %body22, label %done22
body22:
  %i22 = phi i64 [ 0, %done5 ], [ %v59, %body22 ]
  %v24 = add nsw i64 %x1, %i22
  %v25 = trunc i64 %v24 to i32
  %v26 = icmp sle i32 %v25, %v2
  %v27 = getelementptr inbounds float, ptr %p0, i64 %i22
  %v28 = load float, ptr %v27, align 4
  %v29 = select i1 %v26, float %v28, float %v4
  %v30 = fsub float %v29, %v21
  %v31 = call float @llvm.maximum.f32(float %v30, float 0xC05A000000000000)
  %v32 = call float @llvm.minimum.f32(float %v31, float 0x40562E4300000000)
  %v33 = call float @llvm.fma.f32(float %v32, float 0x3FF7154760000000, float 0x4168000000000000)
  %v34 = fsub float %v33, 0x4168000000000000
  %v35 = bitcast float %v33 to i32
  %v36 = call float @llvm.fma.f32(float %v34, float 0xBFE62E4000000000, float %v32)
  %v37 = call float @llvm.fma.f32(float %v34, float 0xBEB7F7D1C0000000, float %v36)
  %v38 = fmul float %v37, %v37
  %v39 = fmul float %v37, %v37
  %v40 = call float @llvm.fma.f32(float 0x3F8123B820000000, float %v37, float 0x3FA5558E60000000)
  %v41 = call float @llvm.fma.f32(float 0x3F56A36720000000, float %v39, float %v40)
  %v42 = call float @llvm.fma.f32(float 0x3FC5554900000000, float %v37, float 0x3FDFFFFFC0000000)
  %v43 = call float @llvm.fma.f32(float %v41, float %v39, float %v42)
  %v44 = call float @llvm.fma.f32(float %v38, float %v43, float %v37)
  %v45 = fadd float %v44, 0x3FF0000000000000
  %v46 = fcmp olt float %v30, 0x0000000000000000
  %v47 = select i1 %v46, i32 1602224128, i32 1056964608
  %v48 = shl i32 %v35, 23
  %v49 = add i32 %v48, %v47
  %v50 = bitcast i32 %v49 to float
  %v51 = select i1 %v46, float 0x3BF0000000000000, float 0x4000000000000000
  %v52 = fmul float %v45, %v50
  %v53 = fmul float %v52, %v51
  %v54 = fcmp ogt float %v30, 0x40562E4300000000
  %v55 = select i1 %v54, float 0x7FF0000000000000, float %v53
  %v56 = getelementptr inbounds float, ptr %w10, i64 %i22
  store float %v55, ptr %v56, align 4
  %v57 = load float, ptr %s18
  %v58 = fadd reassoc float %v57, %v55
  store float %v58, ptr %s18
  %v59 = add nuw nsw i64 %i22, 1
  %v60 = icmp slt i64 %v59, %n1
  br i1 %v60, label %body22, label %done22, !llvm.loop !3
done22:
  %v61 = load float, ptr %s18
  %v63 = icmp slt i64 0, %n1
  br i1 %v63, label %body62, label %done62
body62:
  %i62 = phi i64 [ 0, %done22 ], [ %v68, %body62 ]
  %v64 = getelementptr inbounds float, ptr %w10, i64 %i62
  %v65 = load float, ptr %v64, align 4
  %v66 = fdiv float %v65, %v61
  %v67 = getelementptr inbounds float, ptr %p1, i64 %i62
  store float %v66, ptr %v67, align 4
  %v68 = add nuw nsw i64 %i62, 1
  %v69 = icmp slt i64 %v68, %n1
  br i1 %v69, label %body62, label %done62, !llvm.loop !6
done62:
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 4}
!3 = distinct !{!3, !4, !5}
!4 = !{!"llvm.loop.vectorize.enable", i1 true}
!5 = !{!"llvm.loop.interleave.count", i32 4}
!6 = distinct !{!6, !7, !8}
!7 = !{!"llvm.loop.vectorize.enable", i1 true}
!8 = !{!"llvm.loop.interleave.count", i32 4}
define void @kernel(i64 %lo, i64 %hi, ptr noalias %args, ptr noalias %buffers) nounwind {
entry:
  %v1 = load i64, ptr %args, align 8
  %v2 = getelementptr inbounds i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2, align 8
  %v4 = getelementptr inbounds i64, ptr %args, i64 2
  %v5 = load i64, ptr %v4, align 8
  %v6 = getelementptr inbounds ptr, ptr %buffers, i64 %v5
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr inbounds i64, ptr %args, i64 3
  %v9 = load i64, ptr %v8, align 8
  %v10 = getelementptr i8, ptr %v7, i64 %v9
  %v11 = getelementptr inbounds i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11, align 8
  %v13 = getelementptr inbounds i64, ptr %args, i64 5
  %v14 = load i64, ptr %v13, align 8
  %v15 = getelementptr inbounds i64, ptr %args, i64 6
  %v16 = load i64, ptr %v15, align 8
  %v17 = getelementptr inbounds ptr, ptr %buffers, i64 %v16
  %v18 = load ptr, ptr %v17, align 8
  %v19 = getelementptr inbounds i64, ptr %args, i64 7
  %v20 = load i64, ptr %v19, align 8
  %v21 = getelementptr i8, ptr %v18, i64 %v20
  %v22 = getelementptr inbounds i64, ptr %args, i64 8
  %v23 = load i64, ptr %v22, align 8
  %v24 = getelementptr inbounds i64, ptr %args, i64 9
  %v25 = load i64, ptr %v24, align 8
  %v26 = getelementptr inbounds i64, ptr %args, i64 10
  %v27 = load i64, ptr %v26, align 8
  %v28 = getelementptr inbounds i64, ptr %args, i64 11
  %v29 = load i64, ptr %v28, align 8
  %s30 = alloca float, i64 %v3, align 64
  %v32 = icmp slt i64 %lo, %hi
  br i1 %v32, label %body31, label %done31
body31:
  %i31 = phi i64 [ %lo, %entry ], [ %v37, %body31 ]
  %v33 = mul nsw i64 %i31, %v12
  %v34 = getelementptr i8, ptr %v10, i64 %v33
  %v35 = mul nsw i64 %i31, %v23
  %v36 = getelementptr i8, ptr %v21, i64 %v35
  call void @body(i64 %v3, ptr %v34, ptr %v36, i64 %v14, i64 %v25, i64 %v27, i64 %v29, i64 %i31, i64 0, ptr %s30)
  %v37 = add nuw nsw i64 %i31, 1
  %v38 = icmp slt i64 %v37, %hi
  br i1 %v38, label %body31, label %done31
done31:
  ret void
}
